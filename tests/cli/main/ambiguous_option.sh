"$MEGAMLA" kv --c 5
[ $? -eq 2 ] || echo "wrong exit status"
"$MEGAMLA" bench --h
[ $? -eq 2 ] || echo "wrong exit status"
