# help VERB and VERB --help are the same text, for every verb of the overview
"$MEGAMLA" --help | sed -n '/^verbs/,/^$/s/^  \([a-z]*\) .*/\1/p' | while read -r verb; do
    "$MEGAMLA" help "$verb" >one || echo "help $verb fails"
    "$MEGAMLA" "$verb" --help >two || echo "$verb --help fails"
    cmp one two
    head -n 1 one
done
