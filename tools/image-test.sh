#!/usr/bin/env bash
# Builds the image from the Dockerfile and runs it as README.md says. With an argument,
# it runs the image that make dist has written to this file. The test needs neither a
# Docker engine nor an image registry. It uses buildah, podman and runc, and makes
# stand-ins for the base images under the names in the Dockerfile. It must run as root.
# On Debian, install its tools with:
# apt-get install buildah podman runc busybox-static curl
set -euo pipefail
made=${1:+$(realpath "$1")}
cd "$(dirname "$0")/.."

for tool in buildah podman runc busybox curl go; do
	command -v "$tool" >/dev/null || {
		echo "image-test: $tool is missing: apt-get install buildah podman runc busybox-static curl" >&2
		exit 1
	}
done
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
work=$(mktemp -d)
export CONTAINERS_STORAGE_CONF=$work/storage.conf
printf '[storage]\ndriver = "vfs"\ngraphroot = "%s/graph"\nrunroot = "%s/run"\n' "$work" "$work" >"$CONTAINERS_STORAGE_CONF"
export CONTAINERS_CONF=$work/containers.conf
cat >"$CONTAINERS_CONF" <<'END'
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
END
name=councild-image-test-$$
cleanup() {
	podman rm -f "$name" >/dev/null 2>&1 || true
	buildah rm -a >/dev/null 2>&1 || true
	rm -rf "$work"
}
trap cleanup EXIT
fail() { echo "image-test: $*" >&2; podman logs "$name" >&2 2>/dev/null || true; exit 1; }
say() { printf 'ok   %s\n' "$*"; }

if [ -z "$made" ]; then
	go_image=$(sed -n 's/^ARG GO_IMAGE=//p' Dockerfile)
	base_image=$(sed -n 's/^ARG BASE_IMAGE=//p' Dockerfile)

	# The stand-in for the build stage has a shell, the Go toolchain and the root certificates.
	stand_in=$(buildah from scratch)
	root=$(buildah mount "$stand_in")
	mkdir -p "$root"/{bin,tmp,etc/ssl/certs,usr/local}
	cp "$(command -v busybox)" "$root/bin/busybox"
	for applet in sh mkdir; do ln -s busybox "$root/bin/$applet"; done
	cp -a "$(go env GOROOT)" "$root/usr/local/go"
	cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
	buildah umount "$stand_in" >/dev/null
	buildah config --env PATH=/usr/local/go/bin:/bin --env GOTOOLCHAIN=local --env HOME=/tmp "$stand_in"
	buildah commit --format docker --quiet "$stand_in" "$go_image" >/dev/null

	# The stand-in for the final stage has only the user.
	stand_in=$(buildah from scratch)
	root=$(buildah mount "$stand_in")
	mkdir -p "$root/etc"
	printf 'nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n' >"$root/etc/passwd"
	buildah umount "$stand_in" >/dev/null
	buildah config --user 65532:65532 "$stand_in"
	buildah commit --format docker --quiet "$stand_in" "$base_image" >/dev/null
	say "stand-ins for $go_image and $base_image"

	buildah build --pull=never --network host --format docker --build-arg VERSION=image-test -t councild . >"$work/build.log" 2>&1 || {
		cat "$work/build.log" >&2
		fail "the build failed"
	}
else
	image=$(podman pull --quiet "oci-archive:$made") || fail "the image cannot be read"
	podman tag "$image" councild
fi
inspect() { buildah inspect --type image --format "$1" councild; }
[ "$(inspect '{{.Docker.Config.User}}')" = 65532:65532 ] || fail "the user is not 65532"
[ "$(inspect '{{.Docker.Config.StopSignal}}')" = SIGTERM ] || fail "no stop signal"
inspect '{{.Docker.Config.Volumes}}' | grep -q /data || fail "no volume"
inspect '{{.Docker.Config.Healthcheck}}' | grep -q healthcheck || fail "no health check"
say "the image has $(podman image inspect --format '{{.Size}}' councild) bytes, user 65532, volume /data, health check"

# podman's default limits are higher than this process may set, so set lower ones.
port=$((20000 + RANDOM % 20000))
mkdir "$work/data" && chown 65532:65532 "$work/data"
podman run --detach --ulimit nofile=4096:4096 --ulimit nproc=4096:4096 --name "$name" --network host \
	--read-only --read-only-tmpfs=false --cap-drop=ALL --security-opt no-new-privileges \
	--volume "$work/data:/data" \
	--env LLM_COUNCIL_ADDR="127.0.0.1:$port" --env LLM_COUNCIL_MODELS=sim:amber,sim:birch,sim:cedar \
	--env LLM_COUNCIL_API_TOKENS=image-test-token councild >"$work/run.log" 2>&1 || {
	cat "$work/run.log" >&2
	fail "the container does not start"
}
url=http://127.0.0.1:$port
for _ in $(seq 50); do curl -fs "$url/readyz" >/dev/null && break; sleep 0.1; done
curl -fs "$url/readyz" | grep -q '"ready":true' || fail "not ready"
say "ready on a read-only root, without capabilities"

pid=$(podman inspect --format '{{.State.Pid}}' "$name")
[ "$(awk '/^Uid:/ {print $2}' "/proc/$pid/status")" = 65532 ] || fail "it runs as another user"
[ "$(awk '/^CapEff:/ {print $2}' "/proc/$pid/status")" = 0000000000000000 ] || fail "it has capabilities"
say "runs as user 65532"

podman healthcheck run "$name" >/dev/null || fail "the health check fails"
say "the health check passes"

[ "$(curl -s -o /dev/null -w '%{http_code}' -d '{"query": "Why is the sky blue?"}' "$url/v1/council")" = 401 ] || fail "it answers without a token"
answer=$(curl -fs -H 'Authorization: Bearer image-test-token' -H 'Content-Type: application/json' -d '{"query": "Why is the sky blue?"}' "$url/v1/council") || fail "no answer"
if ! grep -q '"status":"complete"' <<<"$answer" || ! grep -q '"persisted":true' <<<"$answer"; then
	fail "the answer is $answer"
fi
[ "$(wc -l <"$work/data/bias_metrics.jsonl")" = 6 ] || fail "not 6 records in the volume"
[ "$(stat -c %u "$work/data/bias_metrics.jsonl")" = 65532 ] || fail "the records belong to another user"
say "answers, and 6 records are in the volume"

podman stop --time 10 "$name" >"$work/stop.log" 2>&1 || { cat "$work/stop.log" >&2; fail "it does not stop"; }
[ "$(podman inspect --format '{{.State.ExitCode}}' "$name")" = 0 ] || fail "SIGTERM ends it with $(podman inspect --format '{{.State.ExitCode}}' "$name")"
say "SIGTERM ends it with exit code 0"
