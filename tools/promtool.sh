#!/usr/bin/env bash
# Makes sure that there is a promtool for the tests of deploy/prometheus. If there is none in
# the PATH, the script takes it from Debian's package prometheus and puts it into tools/bin.
# It unpacks the package and does not install it, because that would start a server.
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
