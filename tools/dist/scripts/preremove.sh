#!/bin/sh
# dpkg calls this with "remove" before it removes councild, rpm with 0. Both also call it before an upgrade.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl --no-reload disable --now councild.service
	else
		rm -f /etc/systemd/system/multi-user.target.wants/councild.service
	fi
	;;
esac
