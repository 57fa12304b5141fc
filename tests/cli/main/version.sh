"$MEGAMLA" --version
