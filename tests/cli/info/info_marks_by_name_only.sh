# every reference and nothing portable; the device's reason does not repeat its name
"$MEGAMLA" info | sed -n 's/^ *\([a-z_]* \)* *\(reference\|portable\) .*by name only.*/\2/p' | sort -u
"$MEGAMLA" info | grep 'cuda:0' | grep -e 'is CUDA device' -e 'device:'
true
