# no such file, a pipe nobody writes to, a device
mkfifo pipe
for file in missing pipe /dev/null; do
    "$MEGAMLA" run "$file"
    [ $? -eq 2 ] || echo "$file: wrong exit status"
done
