"$MEGAMLA" check --quick --op merge --case 0 --json missing/result.json >table
status=$?
"$MEGAMLA" bench --quick --op kv_gather --formats 288 --tokens 1 --json missing/result.json >table
echo "$status $?"
