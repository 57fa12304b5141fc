# bash completion of megamla(1); tests/cli/check_words.py holds it against the --help texts.
# shellcheck shell=bash disable=SC2207 # words of compgen are what COMPREPLY holds

# The implementations this build lists.
_megamla_implementations() {
    "${COMP_WORDS[0]}" info --json 2>/dev/null |
        sed -n 's/^ *"name": "\(.*\)",$/\1/p' | sort -u
}

_megamla() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} verb=${COMP_WORDS[1]}
    local options values="" has_value=1
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "run check bench info kv help --help --version" -- "$cur"))
        return
    fi
    if [ "$verb" = help ]; then
        COMPREPLY=($(compgen -W "run check bench info kv" -- "$cur"))
        return
    fi
    # The value of the option before the cursor: one of a few words, a file, or what nobody can
    # guess, such as a number.
    case $verb:$prev in
    kv:--draft | kv:-d) ;;
    *:--device | *:-d) values="cpu cuda" ;;
    run:--compare | run:-c | run:--impl | run:-i | check:--impl | bench:--impl)
        values=$(_megamla_implementations)
        ;;
    bench:--op)
        values="attend_paged attend_rows project kv_insert kv_gather list_window list_compressed"
        values="$values list_combined list_slots step step_apart host_cost"
        ;;
    bench:--formats) values="528+288 528+528 584+584 bf16 584 528 288" ;;
    bench:--lengths) values="full mixed short" ;;
    check:--op)
        values="kv_insert kv_gather lists weights attend graph streams attend_large merge chain"
        values="$values project project_wide"
        ;;
    kv:--window-format | kv:-w | kv:--compressed-format | kv:-f) values="v4 v41_fp8 v41_fp4" ;;
    kv:--index-format | kv:-i) values="index_fp8 index_fp4" ;;
    kv:--context | kv:-c) values="8k 32k 64k 128k 1m" ;;
    kv:--memory | kv:-m) values="24GiB 40GiB 48GiB 80GiB 96GiB 141GB 180GB" ;;
    run:--output | run:-o | check:--json | bench:--json | bench:--plot)
        COMPREPLY=($(compgen -f -- "$cur"))
        return
        ;;
    *:--threads | *:-t | *:--repeat | *:-r | *:--seed | *:--case | *:--heads | *:--tokens | *:-n) ;;
    *:--samples | *:--commit | *:--window-page | *:--block | *:--padded | *:--page-tokens) ;;
    *:--layers | *:--contexts) ;;
    *) has_value=0 ;;
    esac
    if [ "$has_value" -eq 1 ]; then
        COMPREPLY=($(compgen -W "$values" -- "$cur"))
        return
    fi
    case $verb in
    run) options="--output --compare --impl --device --threads --repeat --json --help" ;;
    check) options="--op --impl --quick --seed --case --threads --device --json --help" ;;
    bench)
        options="--op --heads --tokens --contexts --formats --lengths --padded --warm --page-tokens"
        options="$options --layers --batch-invariant --impl --device --threads --samples --quick --seed"
        options="$options --json --plot --commit --help"
        ;;
    info) options="--json --help" ;;
    kv)
        options="--context --memory --window-format --compressed-format --index-format --draft"
        options="$options --window-page --block --json --help"
        ;;
    *) return ;;
    esac
    # Only run takes an operand, a file.
    if [ "$verb" = run ] && [ "${cur#-}" = "$cur" ]; then
        COMPREPLY=($(compgen -f -- "$cur"))
    else
        COMPREPLY=($(compgen -W "$options" -- "$cur"))
    fi
}

complete -o filenames -F _megamla megamla
