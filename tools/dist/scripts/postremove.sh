#!/bin/sh
# The records and sessions in /var/lib/councild stay, even if dpkg purges the settings.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
