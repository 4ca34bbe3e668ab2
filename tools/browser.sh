#!/usr/bin/env bash
# Makes sure that there is a browser for the tests of the page. As root on a system with
# apt it installs Chromium's headless shell, which halves the time of these tests. If that
# fails and no other browser is found, it installs Chromium.
set -euo pipefail
shell=/usr/lib/chromium/chromium-headless-shell # e2e/main_test.go prefers it to any other browser.
# found reports whether a browser has one of the names and paths that chromedp looks for.
found() {
	local name
	for name in headless_shell headless-shell chromium chromium-browser google-chrome google-chrome-stable google-chrome-beta \
		google-chrome-unstable /snap/bin/chromium chrome "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" \
		/Applications/Chromium.app/Contents/MacOS/Chromium; do
		command -v "$name" >/dev/null && return
	done
	return 1
}
[ -x "$shell" ] && exit
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	install() { DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends fonts-liberation "$1"; }
	echo "installing Chromium's headless shell for the tests of the page"
	apt-get update -q || true
	install chromium-headless-shell && exit
	found || install chromium || true
fi
found && exit
echo "the tests of the page need Chromium or Chrome: install it (on Debian: sudo apt-get install chromium-headless-shell) and run make test again" >&2
exit 1
