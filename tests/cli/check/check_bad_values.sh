# every name is held against the accepted ones before anything runs
for option in --op=list --op=attnd --impl=library --impl=fastest --case=999999 --json=--quick \
    --json= --seed=x --device=cuda:99 --op=graph; do
    "$MEGAMLA" check "$option"
    [ $? -eq 2 ] || echo "$option: wrong exit status"
done
"$MEGAMLA" check --op merge --impl avx2
[ $? -eq 2 ] || echo "wrong exit status"
"$MEGAMLA" check --op lists --impl reference --quick
[ $? -eq 2 ] || echo "wrong exit status"
