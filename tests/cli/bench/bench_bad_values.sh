for option in --op=attend --formats=foo --heads=12 --heads=136 --heads=64,x --tokens=0 --impl=fastest \
    --samples=4 --json=--quick --lengths=long --lengths=short --batch-invariant --device=tpu --plot=- \
    --op=list_window; do
    "$MEGAMLA" bench "$option"
    [ $? -eq 2 ] || echo "$option: wrong exit status"
done
"$MEGAMLA" bench --op attend_paged --formats bf16
[ $? -eq 2 ] || echo "wrong exit status"
"$MEGAMLA" bench --op project --formats 528
[ $? -eq 2 ] || echo "wrong exit status"
"$MEGAMLA" bench --op project --plot x.svg
[ $? -eq 2 ] || echo "wrong exit status"
PATH=/nonexistent "$MEGAMLA" bench --plot x.svg
[ $? -eq 2 ] || echo "wrong exit status"
