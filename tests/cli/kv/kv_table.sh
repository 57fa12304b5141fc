"$MEGAMLA" kv --context 65536 --memory 80GiB
