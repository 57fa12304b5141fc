# k and m are binary, as people say context lengths; the memory's units are listed
"$MEGAMLA" kv --context 64k | cmp - "$SRC/tests/cli/kv/kv_table.stdout.exact"
"$MEGAMLA" kv --context 1M --json | grep context_tokens
"$MEGAMLA" kv --context 64kb
"$MEGAMLA" kv --memory 80
