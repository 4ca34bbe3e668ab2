#!/usr/bin/env bash
# Sees to it that there is a browser for the tests of the page. Where none is found
# and this runs as root on a system with apt, Chromium is installed.
set -euo pipefail
# The names and places that chromedp looks for.
found() {
	local name
	for name in headless_shell headless-shell chromium chromium-browser google-chrome google-chrome-stable google-chrome-beta \
		google-chrome-unstable /snap/bin/chromium chrome "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" \
		/Applications/Chromium.app/Contents/MacOS/Chromium; do
		command -v "$name" >/dev/null && return
	done
	return 1
}
found && exit
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "installing Chromium for the tests of the page"
	apt-get update -q &&
		DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends chromium fonts-liberation &&
		found && exit
fi
echo "the tests of the page need Chromium or Chrome: install it (on Debian: sudo apt-get install chromium) and run make test again" >&2
exit 1
