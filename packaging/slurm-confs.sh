# What of Slurm's configuration, for any cluster of this host, still needs files of ours. Stands in
# the maintainer scripts, and only reads. DPKG_ROOT is dpkg's: where the host's files are, empty but
# in tests. What cannot be read is passed over, and nothing waits for long: in a folder of SlurmUser's
# there may be anything.
root="${DPKG_ROOT:-}"
unset said
home=/usr/lib/slurm-gputopo

# At most 16 MiB of a plain file; a pipe would never end.
contents() {
    [ ! -f "$root$1" ] || timeout 5 head -c 16777216 "$root$1" 2>/dev/null || true
}

# A configuration without comments; \# begins none.
without_comments() {
    contents "$1" | tr '\0\r' '\n\n' | sed 's/\(^\|[^\\]\)#.*/\1/'
}

# The files that the words of a command line, unit or environment name; one word a line.
named_in_words() {
    awk 'wanted { print; wanted = 0; next }
        /^-[A-Za-z]*f$/ || $0 == "SLURM_CONF" { wanted = 1; next }
        sub(/^-[A-Za-z]*f\//, "/") || sub(/^SLURM_CONF=/, "") { print }'
}

# A text as the replacement in an s,,, of sed.
literal() {
    printf '%s' "$1" | sed 's/[\\&,]/\\&/g'
}

of_running_daemons() {
    grep -lazE '(^|/)(slurmctld|slurmd|slurmrestd|sackd)$' "$root"/proc/[0-9]*/cmdline 2>/dev/null | while read -r cmdline; do
        folder="$(readlink "${cmdline%/*}/cwd" | head -n 1 || true)"
        cat "$cmdline" "${cmdline%/*}/environ" 2>/dev/null | tr '\0' '\n' | named_in_words |
            sed "s,^[^/],$(literal "$folder")/&,"
    done
}

unit_files() {
    for file in "$root"/etc/default/slurm* "$root"/etc/sysconfig/slurm* "$root"/etc/environment "$root"/etc/profile.d/*slurm* \
        "$root"/etc/init.d/slurm* "$root"/*/systemd/system/slurm*.service "$root"/*/systemd/system/slurm*.d/*.conf \
        "$root"/usr/*/systemd/system/slurm*.service "$root"/usr/*/systemd/system/slurm*.d/*.conf \
        "$root"/usr/local/lib/systemd/system/slurm*.service "$root"/usr/local/lib/systemd/system/slurm*.d/*.conf \
        "$root"/etc/systemd/system/gputopo*.d/*.conf; do
        printf '%s\n' "${file#"$root"}"
    done
}

# Units, and the files of their environment.
of_units() {
    unit_files | while read -r file; do
        printf '%s\n' "$file"
        without_comments "$file" | sed -n 's/^[[:space:]]*EnvironmentFile[[:space:]]*=[[:space:]]*-\{0,1\}//p' | tr -d '"'
    done | while read -r file; do
        without_comments "$file" | tr " \t\"'=" '[\n*]' | sed '/^$/d' | named_in_words
    done
}

# Files to begin with, there or not; those of configless nodes among them.
first_confs() {
    for file in "$root"/etc/slurm*/*.conf "$root"/usr/local/etc/slurm*/*.conf "$root"/usr/local/etc/slurm*.conf \
        "$root"/opt/slurm*/etc/*.conf "$root"/usr/local/slurm*/etc/*.conf "$root"/run/slurm*/conf/*.conf \
        "$root"/var/spool/*/conf-cache/*.conf "$root"/var/spool/*/*/conf-cache/*.conf "$root"/var/lib/*/conf-cache/*.conf; do
        printf '%s\n' "${file#"$root"}"
    done
    of_running_daemons
    of_units
    printf '%s\n' "$said" | sed -n 's/^SLURM_CONF *= *//p'
}

# Of lines FOLDER|FILE those of files that are there. FOLDER is that of the slurm.conf by which one
# came to the file: a FILE without a slash lies there, as one with *, for %c, may.
there() {
    while IFS='|' read -r folder name; do
        case "$name" in
            /*) ;;
            *) name="$folder/$name" ;;
        esac
        (
            IFS=
            for file in $root$name; do
                [ ! -f "$file" ] || printf '%s|%s\n' "$folder" "${file#"$root"}"
            done
        )
    done
}

# What the files of such lines include, plugstack.conf among it. Slurm looks beside slurm.conf alone.
included() {
    while IFS='|' read -r folder file; do
        without_comments "$file" |
            sed -n 's/^[[:space:]]*\(include[[:space:]]\|plugstackconfig[[:space:]]*=\)[[:space:]]*\([^[:space:]]*\).*/\2/Ip' |
            tr -d '"' | sed "s/%c/*/g; s,^,$(literal "$folder")|,"
    done | there
}

# Every file of Slurm's configuration, one a line.
slurm_confs() {
    new="$(first_confs | sed -n 's,^\(/.*\)/[^/]*$,\1|&\n\1|plugstack.conf,p' | there | sort -u)"
    found="$new"
    for _ in 1 2 3; do
        new="$(printf '%s\n' "$new" | included | sort -u)"
        found="$(printf '%s\n%s\n' "$found" "$new" | sort -u)"
    done
    printf '%s\n' "$found" | cut -s -d '|' -f 2- | sort -u
}

# Once: where it is down each try takes its ten seconds.
ask_slurmctld() {
    [ -z "${said+known}" ] || return 0
    said="$(timeout 10 scontrol show config 2>/dev/null | tr -d '\0' || true)"
}

# Whether the configuration on standard input names the directory of our select plugin, by any name.
names_plugin_dir() {
    text="$(cat)"
    case "$text" in
        *slurm-gputopo/slurm*) return 0 ;;
    esac
    printf '%s\n' "$text" | sed -n 's/^[[:space:]]*plugindir[[:space:]]*=[[:space:]]*//Ip' | tr -d '" \t' | tr ':' '\n' |
        while read -r folder; do
            [ ! "$root$folder" -ef "$root$home/slurm" ] || echo same
        done | grep same >/dev/null
}

# The first that names it, for people to read; nothing where none does.
who_names_plugin_dir() {
    ask_slurmctld
    if printf '%s\n' "$said" | grep -i '^PluginDir' | names_plugin_dir; then
        echo "the running slurmctld (scontrol show config)"
        return
    fi
    slurm_confs | while read -r conf; do
        if without_comments "$conf" | names_plugin_dir; then
            printf '%s\n' "$conf" | tr -cd '[:print:]\n'
            break
        fi
    done
}

# Whether slurmctld starts without our Lua files: status 1, and why on standard error, where a
# job_submit.lua beside a slurm.conf is a link to ours, or its load would fail.
starts_without_scripts() {
    ask_slurmctld
    { slurm_confs; echo /etc/slurm/slurm.conf; } | sed 's,/[^/]*$,,' | sort -u | {
        status=0
        while read -r folder; do
            script="$folder/job_submit.lua"
            own="$(contents "$script" | tr -d '\0' | sed 's/--.*//')"
            case "$(readlink -m "$root$script" || true)|$own" in
                "$home"/* | "$root$home"/*)
                    say "is a link to this package: run 'gputopo disable --apply --slurm-conf $folder/slurm.conf' and restart slurmctld first"
                    status=1
                    ;;
                *"|"*"$home"/*pcall* | *"|"*pcall*"$home"/*)
                    say "loads the bridge from this package: without it jobs get Slurm's own choice; its lines for gputopo may go"
                    ;;
                *"|"*"$home"/*)
                    say "loads the bridge from this package without pcall, so slurmctld would not start: take that out and restart slurmctld first"
                    status=1
                    ;;
            esac
        done
        exit "$status"
    }
}

# Whether jobs start without our SPANK plugin: status 1, and why on standard error, where not.
starts_without_spank() {
    slurm_confs | {
        status=0
        while read -r script; do
            if without_comments "$script" | grep -q "^[[:space:]]*required[[:space:]].*$home/spank/"; then
                say "says 'required' of this package's SPANK plugin, and no job would start without it: say 'optional', or take the line out, first"
                status=1
            fi
        done
        exit "$status"
    }
}

# Whether Slurm works without our programs of these folders ("a\|b"), which lines of a site's own
# call (TaskProlog and the like): status 1, and why on standard error, where not.
starts_without_programs() {
    ask_slurmctld
    slurm_confs | {
        status=0
        while read -r script; do
            line="$(without_comments "$script" | grep -i "^[[:space:]]*[a-z]*[[:space:]]*=.*$home/\($1\)/" |
                grep -iv '^[[:space:]]*plugindir' | head -n 1)" || true
            if [ -n "$line" ]; then
                say "calls a program of this package, without which jobs fail or slurmctld does not start: take '$(echo "$line" | sed 's/^[[:space:]]*//' | cut -c 1-200)' out and restart Slurm's daemons first"
                status=1
            fi
        done
        exit "$status"
    }
}

say() {
    printf 'slurm-gputopo: %s %s\n' "$script" "$1" | tr -cd '[:print:]\n' >&2
}
