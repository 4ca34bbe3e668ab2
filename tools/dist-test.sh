#!/usr/bin/env bash
# Shows that a release is what it should be: two clones of the commit make the same bytes, the
# archive runs, the packages install and leave no trace but data, and the image runs. It must run as
# root on Debian. DIR is a release that make dist has made from the commit; without it, the first
# clone makes one. With FRESH=1 the second clone compiles everything again, and does not take what
# the first has compiled. On Debian, install the tools with:
# apt-get install mmdebstrap rpm systemd man-db podman buildah runc busybox-static curl
set -euo pipefail
export LC_ALL=C
release=${1:+$(realpath "$1")}
cd "$(dirname "$0")/.."

for tool in mmdebstrap rpm systemd-analyze man podman buildah runc busybox curl git go; do
	command -v "$tool" >/dev/null || {
		echo "dist-test: $tool is missing: apt-get install mmdebstrap rpm systemd man-db podman buildah runc busybox-static curl" >&2
		exit 1
	}
done
work=$(mktemp -d)
chmod 755 "$work"
pid=
cleanup() {
	[ -z "$pid" ] || kill "$pid" 2>/dev/null || true
	umount "$work"/root/{proc,dev} 2>/dev/null || true
	chmod -R u+w "$work"
	rm -rf "$work"
}
trap cleanup EXIT
fail() { echo "dist-test: $*" >&2; exit 1; }
say() { printf 'ok   %s\n' "$*"; }

# Two clones, at paths of different length.
commit=$(git rev-parse HEAD)
version=$(git describe --tags --always)
clone() {
	git clone --quiet --no-checkout . "$1"
	git -C "$1" checkout --quiet "$commit"
	make -C "$1" --no-print-directory dist VERSION="$version" >"$1.log" 2>&1 || { cat "$1.log" >&2; fail "make dist failed"; }
}
if [ -z "$release" ]; then
	clone "$work/a"
	release=$work/a/dist
fi
if [ -n "${FRESH:-}" ]; then
	GOCACHE=$work/cache clone "$work/another/clone"
	rm -rf "$work/cache"
else
	clone "$work/another/clone"
fi
diff "$release/SHA256SUMS" "$work/another/clone/dist/SHA256SUMS" || fail "two clones make different files"
(cd "$release" && sha256sum --check --quiet SHA256SUMS) || fail "SHA256SUMS does not fit"
say "two clones make the same $(wc -l <"$release/SHA256SUMS") files"
rm -rf "$work/another"

# The headers, libraries, SBOMs, licences and the configuration of the image.
go -C tools/dist test -count=1 . -dist "$release" || fail "a file of the release is not what it should be"
say "headers, linkage, SBOMs, licences, configuration of the image"

# The archive runs the demo from an empty directory, without any setting.
mkdir "$work/empty"
tar -xzf "$release"/councild_*_linux_amd64.tar.gz -C "$work/empty"
archive=$(echo "$work"/empty/*)
mkdir "$work/home"
begin=$(date +%s%N)
(cd "$archive" && exec env -i HOME="$work/home" TMPDIR="$work/home" ./councild demo --addr 127.0.0.1:0 --sessions 0) >"$work/demo.log" 2>"$work/demo.err" &
pid=$!
until grep -q 'answers at http' "$work/demo.log"; do
	kill -0 "$pid" 2>/dev/null || { cat "$work/demo.err" >&2; fail "the demo does not start"; }
	sleep 0.01
done
took=$((($(date +%s%N) - begin) / 1000000))
url=$(sed -n 's/.* answers at \(http[^ ]*\).*/\1/p' "$work/demo.log")
curl -fs "$url/" | grep -q '<title>' || fail "the demo serves no page"
kill "$pid"
wait "$pid" || fail "the demo ends with $?"
pid=
[ "$took" -lt 2000 ] || fail "the demo printed its address after $took ms"
say "the archive runs the demo: its address came after $took ms"
[ "$("$archive/councild" version | cut -d' ' -f2)" = "$version" ] || fail "the program says $("$archive/councild" version)"
bash -c "source '$archive/completions/councild.bash' && complete -p councild" >/dev/null || fail "the completion for bash does not load"
man --warnings -l "$archive"/man/*.1 2>&1 >/dev/null | grep . && fail "man warns"
say "the completion loads, and man shows $(find "$archive/man" -name '*.1' | wc -l) pages"
if command -v qemu-aarch64-static >/dev/null; then
	mkdir "$work/arm64"
	tar -xzf "$release"/councild_*_linux_arm64.tar.gz -C "$work/arm64"
	qemu-aarch64-static "$work"/arm64/*/councild version | grep -q "linux/arm64" || fail "the program for arm64 does not run"
	say "the program for arm64 runs in an emulator"
fi

# The packages, in a root with nothing but Debian's base, systemd and what the packages depend on.
root=$work/root
mapfile -t sources < <(find /etc/apt/sources.list /etc/apt/sources.list.d -name '*.sources' -o -name '*.list' -size +0 2>/dev/null)
mmdebstrap --quiet --variant=apt --include=systemd,man-db,procps "$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)" "$root" "${sources[@]}" >"$work/mmdebstrap.log" 2>&1 ||
	{ cat "$work/mmdebstrap.log" >&2; fail "there is no Debian to install into"; }
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
# traces lists the files, but not those that dpkg, rpm and the cache of man keep for themselves.
traces() {
	find "$root" -xdev -path "$root/proc" -prune -o -path "$root/dev" -prune -o -path "$root/run" -prune -o -path "$root/var/lib/dpkg" -prune -o -path "$root/var/lib/rpm" -prune -o \
		-path "$root/var/cache" -prune -o -path "$root/var/log" -prune -o -path "$root/tmp" -prune -o -printf '%y %m %U %P\n' | sort
}
installed() {
	chroot "$root" councild version | grep -q "$version" || fail "$1: the program does not run"
	[ "$(stat -c '%a %u' "$root/etc/councild/env")" = "600 0" ] || fail "$1: /etc/councild/env is not secret"
	chroot "$root" systemd-analyze verify councild.service >"$work/verify.log" 2>&1 || { cat "$work/verify.log" >&2; fail "$1: the unit is wrong"; }
	if [ -s "$work/verify.log" ]; then cat "$work/verify.log" >&2; fail "$1: systemd warns"; fi
	chroot "$root" systemctl enable councild 2>/dev/null
	[ -L "$root/etc/systemd/system/multi-user.target.wants/councild.service" ] || fail "$1: the unit cannot be enabled"
	chroot "$root" man -w councild-ask >/dev/null || fail "$1: the manual is missing"
	# The data, as a unit with a dynamic user keeps it.
	mkdir -p "$root/var/lib/private/councild"
	ln -sfn private/councild "$root/var/lib/councild"
	chroot "$root" councild store simulate --sessions 2 --out /var/lib/private/councild/bias_metrics.jsonl >/dev/null || fail "$1: no records"
}
data='var/lib/councild
var/lib/private/councild
var/lib/private/councild/bias_metrics.jsonl
var/lib/private/councild/bias_metrics.jsonl.lock'
# removed compares the files with those before, and then removes the data.
removed() {
	traces >"$work/after"
	if [ "$(comm -13 "$work/before" "$work/after" | cut -d' ' -f4- | sort)" != "$data" ] || [ -n "$(comm -23 "$work/before" "$work/after")" ]; then
		diff "$work/before" "$work/after" >&2 || true
		fail "$1: other traces than the data"
	fi
	rm -r "$root/var/lib/councild" "$root/var/lib/private/councild"
}
traces >"$work/before"

cp "$release"/councild_*_linux_amd64.deb "$root/tmp/councild.deb"
chroot "$root" dpkg -i /tmp/councild.deb >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log" >&2; fail "dpkg -i"; }
grep -q 'systemctl enable --now councild' "$work/dpkg.log" || fail "dpkg does not say how to begin"
chroot "$root" dpkg --verify councild | grep . && fail "dpkg --verify"
installed deb
echo LLM_COUNCIL_MODELS=sim:amber,sim:birch >>"$root/etc/councild/env"
chroot "$root" dpkg -r councild >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log" >&2; fail "dpkg -r"; }
grep -q sim:amber "$root/etc/councild/env" || fail "dpkg -r removes the settings"
chroot "$root" dpkg -P councild >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log" >&2; fail "dpkg -P"; }
removed deb
say "the deb installs, its unit is right, and only data stays"

cp "$release"/councild_*_linux_amd64.rpm "$root/tmp/councild.rpm"
mkdir -p "$root"/usr/share/{fish/vendor_completions.d,zsh/site-functions} # On Fedora they belong to other packages.
traces >"$work/before"
in_root=(rpm --root "$root" --dbpath /var/lib/rpm --nodeps)
"${in_root[@]}" -i "$root/tmp/councild.rpm" >"$work/rpm.log" 2>&1 || { cat "$work/rpm.log" >&2; fail "rpm -i"; }
"${in_root[@]}" -V councild || fail "rpm -V"
installed rpm
"${in_root[@]}" -e councild >"$work/rpm.log" 2>&1 || { cat "$work/rpm.log" >&2; fail "rpm -e"; }
removed rpm
say "the rpm installs, its unit is right, and only data stays"
umount "$root"/{proc,dev}

tools/image-test.sh "$release"/councild_*_image.tar
