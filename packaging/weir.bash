# Completion of weir for bash, and for zsh with its bashcompinit. It asks the command itself, whose help is printed from the
# tables that it reads its options with: so it knows what the installed version knows.

# What the help on stdin lists: options, or commands and actions. The latter may stand in the usage, as a|b or [a | b WORD].
_weir_options() {
    sed -n 's/^  \(-[a-z], \)\{0,1\}\(--[a-z-]*\).*/\2/p' | tr '\n' ' '
}

_weir_words() {
    sed -n -e 's/^  \([a-z][a-z-]*\)  *.*/\1/p' -e '1s/ | /|/g' -e '1s/.* \[\{0,1\}\([a-z]*|[a-z|]*\).*/\1/p' | tr '|\n' '  '
}

# The placeholder of an option's value, or nothing: _weir_value OPTION, with the help on stdin.
_weir_value() {
    sed -n "s/^  $1 \([^ ][^ ]*\) .*/\1/p"
}

_weir_tenants() {
    "$1" tenant list 2>/dev/null | sed -n '2,$s/ .*//p' | tr '\n' ' '
}

# The settings that the help on stdin lists, each with the = that follows it.
_weir_keys() {
    sed -n 's/^Keys: *//p' | sed 's/[^ ][^ ]*/&=/g'
}

# The words of a setting, or nothing: _weir_choices KEY, with the help on stdin.
_weir_choices() {
    sed -n "s/^Words:.* $1=\([^ ]*\).*/\1/p" | tr '|' ' '
}

_weir() {
    local weir=$1 word=$2 before=$3 first=1 i help actions action= named= words= key= with=
    COMPREPLY=()
    [ "$COMP_CWORD" -eq 1 ] || [ "${COMP_WORDS[1]}" != help ] || first=2
    if [ "$COMP_CWORD" -eq "$first" ]; then
        COMPREPLY=($(compgen -W "$("$weir" --help | _weir_words) help" -- "$word"))
        return
    fi
    help=$("$weir" help "${COMP_WORDS[first]}" 2>/dev/null) || return
    actions=$(_weir_words <<<"$help")
    for ((i = first + 1; i < COMP_CWORD; i++)); do
        case " $actions" in
        *" ${COMP_WORDS[i]} "*)
            action=${COMP_WORDS[i]}
            help=$("$weir" help "${COMP_WORDS[first]}" "$action")
            for ((i++; i < COMP_CWORD; i++)); do
                case "${COMP_WORDS[i - 1]},${COMP_WORDS[i]}" in
                *,-* | --run-dir,*) ;;
                *) named=yes ;;
                esac
            done
            ;;
        esac
    done
    case "$word,$before" in
    -*) words=$(_weir_options <<<"$help") ;;
    *,--tenant) words=$(_weir_tenants "$weir") ;;
    *,--*)
        case $(_weir_value "$before" <<<"$help") in
        "" | *FILE* | DIR | PATH) ;; # names of files, as everywhere
        *"|"*) words=$(_weir_value "$before" <<<"$help" | tr '|' ' ') ;;
        *) return ;;
        esac
        ;;
    *)
        case "${COMP_WORDS[first]},$action" in
        run,) [ "$COMP_CWORD" -gt $((first + 1)) ] && [ "$before" != -- ] || COMPREPLY=($(compgen -c -- "$word")) ;;
        tenant,set | tenant,add)
            # Bash takes "=" for a word of its own, unless COMP_WORDBREAKS was changed.
            case "$before,${COMP_WORDS[COMP_CWORD]}" in
            *,=) key=$before word= ;;
            =,*) key=${COMP_WORDS[COMP_CWORD - 2]} ;;
            *,*=*) key=${word%%=*} with=$key= ;;
            esac
            if [ -n "$key" ]; then
                words=$(_weir_choices "$key" <<<"$help")
                words=${words:+$with${words// / $with}}
                ! type compopt >/dev/null 2>&1 || compopt +o default 2>/dev/null # no names of files
            elif [ -n "$named" ]; then
                words=$(_weir_keys <<<"$help")
                ! type compopt >/dev/null 2>&1 || compopt -o nospace 2>/dev/null
            elif [ "$action" = set ]; then
                words=$(_weir_tenants "$weir")
            fi
            ;;
        docker-args, | drain, | undrain, | suspend, | resume, | tenant,show | tenant,remove) words=$(_weir_tenants "$weir") ;;
        *,) words=$actions ;;
        esac
        ;;
    esac
    [ -z "$words" ] || COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _weir weir
