# A name as long as a name can be; the mode of the file that is replaced; a link to nothing stays.
sample=$SRC/examples/captures/window_list.safetensors
long=$(printf '%0250d' 0)
"$MEGAMLA" run "$sample" -o "$long" >/dev/null && chmod 600 "$long" &&
    "$MEGAMLA" run "$sample" -o "$long" >/dev/null && stat -c %a "$long"
ln -s nothing link
"$MEGAMLA" run "$sample" -o link >/dev/null
echo "status $?"
readlink link
find . -name '*.tmp'
