#!/usr/bin/env bash
# Sees to it that there is a promtool for the tests of deploy/prometheus: one in the PATH, or
# the one of Debian's package in tools/bin. The package is unpacked, not installed, because
# installing it would start a Prometheus server.
set -euo pipefail
cd "$(dirname "$0")"
command -v promtool >/dev/null || [ -x bin/promtool ] && exit
if command -v apt-get >/dev/null; then
	echo "unpacking promtool for the tests of the alert rules"
	directory=$(mktemp -d)
	trap 'rm -rf "$directory"' EXIT
	chmod 755 "$directory"
	if (cd "$directory" && { apt-get download -q prometheus || { [ "$(id -u)" = 0 ] && apt-get update -q && apt-get download -q prometheus; }; }) &&
		dpkg-deb -x "$directory"/prometheus_*.deb "$directory"; then
		mkdir -p bin
		cp "$directory/usr/bin/promtool" bin/
		exit
	fi
fi
echo "the tests of the alert rules need promtool, which comes with Prometheus: put it into the PATH and run make test again" >&2
exit 1
