# an implementation only some operations have measures those
"$MEGAMLA" bench --quick --samples 5 --op kv_gather --formats 288 --tokens 64 --impl portable |
    grep -e '^operation' -e '^kv'
