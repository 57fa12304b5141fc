# no file names where none make sense
touch file.safetensors
cat >complete.bash <<'END'
. "$SRC/app/cli/megamla.bash"
try() {
    COMP_WORDS=("$MEGAMLA" "$@")
    COMP_CWORD=$#
    COMPREPLY=()
    _megamla
    echo "$*: ${COMPREPLY[*]}"
}
try run file
try run --output file
try run --threads ""
try check file
try check --json file
try check --op l
try check --impl po
try info ""
try kv --context 6
try kv --draft ""
try kv fi
try bench --samples ""
try help k
END
bash complete.bash
