package main

import (
	"bytes"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// rootsModule is the module with Mozilla's root certificates. With it, the image needs no base image.
const rootsModule = "golang.org/x/crypto/x509roots/fallback"

// nonroot is the user of the image, as in the Dockerfile.
const nonroot = 65532

// image writes the image for both Linux targets as an OCI layout in a tar archive.
func (r release) image(trees map[target]string) error {
	index := mutate.IndexMediaType(empty.Index, types.DockerManifestList)
	for _, t := range targets() {
		if t.os != "linux" {
			continue
		}
		image, err := r.platform(t.arch, trees[t])
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: plain{image}, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: t.os, Architecture: t.arch}},
		})
	}
	dir := filepath.Join(r.work, "image")
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index); err != nil {
		return err
	}
	files, err := directory(dir, "")
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := pack(&b, files[1:], r.time); err != nil { // The first is the directory itself.
		return err
	}
	return write(filepath.Join(r.out, "councild_"+r.version+"_image.tar"), b.Bytes(), 0o644)
}

// plain is an image whose entry in an index has no artifactType, a field that Docker's manifest lists do not have. The
// image is in Docker's format, because podman reads health checks only there.
type plain struct{ v1.Image }

// ArtifactType returns "", which leaves the field out.
func (plain) ArtifactType() (string, error) { return "", nil }

// platform returns the image for one platform. It has the same configuration as the Dockerfile's.
func (r release) platform(arch, tree string) (v1.Image, error) {
	files := []entry{
		{name: "data/", mode: 0o755, user: nonroot},
		{name: "etc/", mode: 0o755},
		{name: "etc/passwd", mode: 0o644, data: []byte("nonroot:x:65532:65532:nonroot:/data:/sbin/nologin\n")},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: roots()},
		{name: "licenses/", mode: 0o755},
		{name: "tmp/", mode: 0o1777},
	}
	for name, from := range map[string]string{
		"councild": "councild", "licenses/LICENSE": "LICENSE", "licenses/THIRD_PARTY_LICENSES.txt": "THIRD_PARTY_LICENSES.txt",
	} {
		path := filepath.Join(tree, from)
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files = append(files, entry{name: name, mode: int64(info.Mode().Perm()), data: data})
	}
	sortEntries(files)
	var b bytes.Buffer
	if err := pack(&b, files, r.time); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	config, err := empty.Image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS = "linux"
	config.Architecture = arch
	config.Created = v1.Time{Time: r.time}
	config.Config = v1.Config{
		User:         "65532:65532",
		Env:          []string{"LLM_COUNCIL_ADDR=0.0.0.0:8080", "LLM_COUNCIL_BIAS_STORE=/data/bias_metrics.jsonl"},
		Volumes:      map[string]struct{}{"/data": {}},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}},
		StopSignal:   "SIGTERM",
		Healthcheck: &v1.HealthConfig{
			Test: []string{"CMD", "/councild", "healthcheck"}, Interval: 30 * time.Second, Timeout: 3 * time.Second, StartPeriod: 5 * time.Second,
		},
		Entrypoint: []string{"/councild"},
		Cmd:        []string{"serve"},
		Labels: map[string]string{
			"org.opencontainers.image.title":       "councild",
			"org.opencontainers.image.description": "An LLM council behind one HTTP call",
			"org.opencontainers.image.source":      "https://github.com/councild/councild",
			"org.opencontainers.image.licenses":    "MIT",
			"org.opencontainers.image.version":     r.version,
			"org.opencontainers.image.revision":    r.commit,
		},
	}
	image, err := mutate.ConfigFile(empty.Image, config)
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "make dist"},
	})
}

// roots returns Mozilla's root certificates. It leaves out those that Mozilla trusts only on conditions, because a file
// cannot express them.
func roots() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // A buffer takes everything.
		}
	}
	return b.Bytes()
}
