for option in --op=attend --formats=foo --heads=12 --heads=136 --heads=64,x --tokens=0 --impl=fastest \
    --samples=4 --json=--quick --lengths=long --lengths=0 --lengths=641 --batch-invariant --device=tpu --plot=- \
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
"$MEGAMLA" bench --op project --lengths short
[ $? -eq 2 ] || echo "wrong exit status"
for option in --padded=101 --page-tokens=0 --page-tokens=1025 --layers=129 --layers=x; do
    "$MEGAMLA" bench --op attend_paged "$option"
    [ $? -eq 2 ] || echo "$option: wrong exit status"
done
for option in --padded=25 --warm --page-tokens=32; do
    "$MEGAMLA" bench "$option"
    [ $? -eq 2 ] || echo "$option: wrong exit status"
done
"$MEGAMLA" bench --op attend_rows --layers 2
[ $? -eq 2 ] || echo "wrong exit status"
PATH=/nonexistent "$MEGAMLA" bench --plot x.svg
[ $? -eq 2 ] || echo "wrong exit status"
