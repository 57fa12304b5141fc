for option in --context=0 --context=-1 --context=1e6 --context= --context=9999999999999999999 \
    --memory=80 --memory=80Gib --memory=GiB --memory=9999999999TiB --block=3 --block=1 \
    --window-page=0 --draft=x --index-format=v4 --window-format=index_fp8; do
    "$MEGAMLA" kv "$option" && echo "$option was accepted"
    [ $? -eq 2 ] || echo "$option: wrong exit status"
done 2>&1 | grep -v '^megamla kv: --.* is .*, must be '
