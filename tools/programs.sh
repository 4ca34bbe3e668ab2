#!/usr/bin/env bash
# Installs the programs with which tests check scripts, recipes and the files of deploy/. It needs root on Debian.
# Elsewhere it names what is missing. RUNLEVEL=1 keeps the servers among the programs from starting.
set -euo pipefail
PATH=$PATH:/usr/sbin
declare -A package=([caddy]=caddy [curl]=curl [jq]=jq [nginx]=nginx [python3]=python3 [shellcheck]=shellcheck [systemd-analyze]=systemd)
missing=()
for program in "${!package[@]}"; do
	command -v "$program" >/dev/null || missing+=("${package[$program]}")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "the tests need these programs, install them first: ${missing[*]}" >&2
	exit 0
fi
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
apt-get update -q || true
apt-get install -qy --no-install-recommends "${missing[@]}"
