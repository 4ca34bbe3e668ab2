#!/bin/sh
# dpkg calls this with "configure" and the version that was replaced, if any; rpm with the number of installed versions.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart councild.service
fi
if [ "$1" = 1 ] || { [ "$1" = configure ] && [ -z "$2" ]; }; then
	echo "councild: write your settings into /etc/councild/env, then run: systemctl enable --now councild"
fi
