"$MEGAMLA" check --op lists --impl portable --case 3
"$MEGAMLA" check --op weights --impl portable --case 3 --json - | grep -e '"op"' -e '"impl"'
