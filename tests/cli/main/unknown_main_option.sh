"$MEGAMLA" --frob
