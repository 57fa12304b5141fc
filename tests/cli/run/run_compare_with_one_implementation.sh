# nothing to compare is no failure; a name nobody has is
capture=$SRC/examples/captures/window_list.safetensors
for name in reference portable; do
    "$MEGAMLA" run "$capture" --compare "$name" --repeat 1 | grep comparison
    "$MEGAMLA" run "$capture" --compare "$name" --repeat 1 >/dev/null || echo "$name fails"
done
"$MEGAMLA" run "$capture" --impl portable --json --compare reference |
    grep -e implementation -e comparison
for option in --impl=reference --compare=avx2; do
    "$MEGAMLA" run "$capture" "$option"
    [ $? -eq 2 ] || echo "$option: wrong exit status"
done
