"$MEGAMLA" "$(printf '\033[31mx')"
