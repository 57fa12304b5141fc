# the first operation's line is in the pipe while the others still run
mkfifo pipe
"$MEGAMLA" check --quick --impl portable >pipe &
pid=$!
exec 3<pipe
read -r _ <&3 # the head
read -r row <&3
sleep 0.3 # enough to end for a command that prints when all is done
kill "$pid" 2>/dev/null
wait "$pid" 2>/dev/null
echo "status $?"
echo "$row"
