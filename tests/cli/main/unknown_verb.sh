"$MEGAMLA" rnu
