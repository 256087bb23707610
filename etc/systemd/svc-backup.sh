#!/bin/sh
# Makes a backup, verifies it, hands it to a command of one's own, and keeps seven daily ones and four weekly ones.
#
#   install -D -m 0755 svc-backup.sh /usr/local/lib/svc/svc-backup
#
# It is run by svc-backup.service, as the user svc and with the server's environment. Settings, as variables:
#   BACKUP_DIR   the folder of the backups: /var/backups/svc
#   BACKUP_SEND  a command that gets each verified backup, as its last argument; it should copy the file to another machine.
#                A failure of it is one of this script.
#   SVC          the command: /opt/svc/bin/svc
# A day's second backup takes the place of the first. Weekly ones are those of Sundays.
set -eu
umask 077

dir=${BACKUP_DIR:-/var/backups/svc}
svc=${SVC:-/opt/svc/bin/svc}
today=${BACKUP_DATE:-$(date +%F)}
daily=$dir/daily-$today.dump
draft=$dir/.draft-$$.dump

# The leftovers of a run that was killed.
find "$dir" -maxdepth 1 -name '.draft-*.dump' -mmin +1440 -delete
trap 'rm -f "$draft"' EXIT

"$svc" backup create "$draft"
mv "$draft" "$daily"
"$svc" backup verify "$daily" || {
    mv "$daily" "$dir/damaged-$today.dump"
    echo "$dir/damaged-$today.dump can't be restored; older backups were kept" >&2
    exit 1
}
if [ "$(date -d "$today" +%u)" = 7 ]; then
    ln -f "$daily" "$dir/weekly-$today.dump"
fi

# Names sort by their dates. All but the newest go, and only after the new one was verified.
for kind in daily:7 weekly:4; do
    ls "$dir" | grep "^${kind%:*}-[0-9-]*\.dump$" | sort -r | tail -n "+$((${kind#*:} + 1))" | while read -r old; do
        rm -f "$dir/$old"
    done
done

if [ -n "${BACKUP_SEND:-}" ]; then
    # The command may have arguments of its own.
    $BACKUP_SEND "$daily"
fi
