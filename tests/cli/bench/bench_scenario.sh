# what is not as usual stands above the table and in the result file
"$MEGAMLA" bench --quick --samples 5 --op attend_paged --formats 528+288 --heads 8 --tokens 4 --threads 1 \
    --lengths mixed --padded 25 --warm --page-tokens 32 --layers 3 --json r.json |
    grep -e '^attention' -e '^attend'
grep -e '"lengths"' -e '"padded' -e '"warm"' -e '"page' -e '"layers"' r.json
