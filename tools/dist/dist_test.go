package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"debug/elf"
	"debug/macho"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var made = flag.String("dist", "", "the directory of a release, which the tests of a release need")

// one returns the only file of the release with this end.
func one(t *testing.T, end string) string {
	t.Helper()
	if *made == "" {
		t.Skip("needs -dist")
	}
	files, err := filepath.Glob(filepath.Join(*made, "*"+end))
	if err != nil || len(files) != 1 {
		t.Fatalf("*%s: %d files: %v", end, len(files), err)
	}
	return files[0]
}

// unpack returns the files of a tar archive, without the directory at the top.
func unpack(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	archive := tar.NewReader(r)
	last := ""
	var when time.Time
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Name <= last || header.Uname != "" || last != "" && !header.ModTime.Equal(when) {
			t.Errorf("%s: not sorted, or with a name of a user, or with a time of its own", header.Name)
		}
		last, when = header.Name, header.ModTime
		if files[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

// archived returns the files of the archive of a target.
func archived(t *testing.T, of target) map[string][]byte {
	t.Helper()
	file, err := os.Open(one(t, "_"+of.String()+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	packed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	if !packed.ModTime.IsZero() {
		t.Errorf("the header of gzip has a time: %v", packed.ModTime)
	}
	files := map[string][]byte{}
	for name, data := range unpack(t, packed) {
		_, name, _ = strings.Cut(name, "/")
		files[name] = data
	}
	return files
}

// Each archive has what it should, and a static binary for its target.
func TestArchives(t *testing.T) {
	for _, of := range targets() {
		t.Run(of.String(), func(t *testing.T) {
			files := archived(t, of)
			for _, name := range []string{
				"LICENSE", "README.md", "CHANGELOG.md", "THIRD_PARTY_LICENSES.txt", "completions/councild.bash", "completions/_councild",
				"completions/councild.fish", "man/councild.1", "man/councild-report-bias.1", "examples/questions.jsonl",
				"deploy/councild.service", "docs/roster.yaml", "api/openapi.yaml",
			} {
				if len(files[name]) == 0 {
					t.Errorf("%s is missing", name)
				}
			}
			program := bytes.NewReader(files["councild"])
			info, err := buildinfo.Read(program)
			if err != nil {
				t.Fatal(err)
			}
			settings := map[string]string{}
			for _, s := range info.Settings {
				settings[s.Key] = s.Value
			}
			if settings["GOOS"] != of.os || settings["GOARCH"] != of.arch || settings["CGO_ENABLED"] != "0" || settings["-trimpath"] != "true" {
				t.Errorf("built for another target, or with cgo, or with paths: %v", settings)
			}
			if of.os == "darwin" {
				machO(t, program, of.arch)
			} else {
				elfHeader(t, program, of.arch)
			}
		})
	}
}

// elfHeader tests that a program is for a processor and that it needs no interpreter and no libraries.
func elfHeader(t *testing.T, program io.ReaderAt, arch string) {
	t.Helper()
	f, err := elf.NewFile(program)
	if err != nil {
		t.Fatal(err)
	}
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	libraries, err := f.ImportedLibraries()
	if f.Machine != machine || f.Type != elf.ET_EXEC || err != nil || len(libraries) > 0 {
		t.Errorf("%v %v, libraries %v: %v", f.Machine, f.Type, libraries, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("it is linked dynamically: %v", p.Type)
		}
	}
}

// machO tests that a program is for a processor, that it needs only libraries that every macOS has, and that it has the
// identifier and the signature without which macOS does not start it.
func machO(t *testing.T, program io.ReaderAt, arch string) {
	t.Helper()
	f, err := macho.NewFile(program)
	if err != nil {
		t.Fatal(err)
	}
	cpu := map[string]macho.Cpu{"amd64": macho.CpuAmd64, "arm64": macho.CpuArm64}[arch]
	if f.Cpu != cpu || f.Type != macho.TypeExec {
		t.Errorf("%v %v", f.Cpu, f.Type)
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		t.Error(err)
	}
	for _, l := range libraries {
		if !strings.HasPrefix(l, "/usr/lib/lib") && !strings.HasPrefix(l, "/System/Library/Frameworks/") {
			t.Errorf("it needs %s", l)
		}
	}
	commands := map[uint32]bool{}
	for _, load := range f.Loads {
		commands[binary.LittleEndian.Uint32(load.Raw())] = true
	}
	const uuid, signature = 0x1b, 0x1d
	if !commands[uuid] || arch == "arm64" && !commands[signature] {
		t.Errorf("the identifier or the signature is missing: %v", commands)
	}
}

// The SBOM of each binary has every module that the binary says it holds, with a licence, and the
// libraries of the page. The texts of the licences name each of them.
func TestSBOM(t *testing.T) {
	for _, of := range targets() {
		t.Run(of.String(), func(t *testing.T) {
			data, err := os.ReadFile(one(t, "_"+of.String()+".cdx.json"))
			if err != nil {
				t.Fatal(err)
			}
			bom := new(cdx.BOM)
			if err := cdx.NewBOMDecoder(bytes.NewReader(data), cdx.BOMFileFormatJSON).Decode(bom); err != nil {
				t.Fatal(err)
			}
			var got []string
			files := archived(t, of)
			for _, c := range *bom.Components {
				got = append(got, c.Name+" "+c.Version)
				if c.Licenses == nil || len(*c.Licenses) == 0 {
					t.Errorf("%s has no licence", c.Name)
				}
				if !bytes.Contains(files["THIRD_PARTY_LICENSES.txt"], []byte("\n"+c.Name+" "+c.Version+"\n")) {
					t.Errorf("the licence of %s %s is not among the texts", c.Name, c.Version)
				}
			}
			info, err := buildinfo.Read(bytes.NewReader(files["councild"]))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range info.Deps {
				if !slices.Contains(got, m.Path+" "+m.Version) {
					t.Errorf("%s %s is missing", m.Path, m.Version)
				}
			}
			for _, name := range []string{"katex ", "markdown-it ", "@highlightjs/cdn-assets ", "std "} {
				if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, name) }) {
					t.Errorf("%s is missing", name)
				}
			}
		})
	}
}

// The image has both platforms, each with the same program as the archive and the configuration of the Dockerfile.
func TestImage(t *testing.T) {
	file, err := os.Open(one(t, "_image.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	dir := t.TempDir()
	for name, data := range unpack(t, file) {
		if !strings.HasSuffix(name, "/") {
			if err := write(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%v: %v", manifest, err)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	if manifest, err = index.IndexManifest(); err != nil || len(manifest.Manifests) != 2 {
		t.Fatalf("%v: %v", manifest, err)
	}
	for _, m := range manifest.Manifests {
		t.Run(m.Platform.String(), func(t *testing.T) {
			image, err := index.Image(m.Digest)
			if err != nil {
				t.Fatal(err)
			}
			likeDockerfile(t, image)
			layers, err := image.Layers()
			if err != nil || len(layers) != 1 {
				t.Fatalf("%d layers: %v", len(layers), err)
			}
			content, err := layers[0].Uncompressed()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = content.Close() }()
			files := unpack(t, content)
			if !bytes.Equal(files["councild"], archived(t, target{m.Platform.OS, m.Platform.Architecture})["councild"]) {
				t.Error("it has another program than the archive")
			}
			if n := bytes.Count(files["etc/ssl/certs/ca-certificates.crt"], []byte("BEGIN CERTIFICATE")); n < 100 {
				t.Errorf("%d root certificates", n)
			}
			if !bytes.Contains(files["licenses/THIRD_PARTY_LICENSES.txt"], []byte("\n"+rootsModule+" ")) {
				t.Error("the licences are missing")
			}
		})
	}
}

// likeDockerfile tests that the instructions of the Dockerfile's last stage say the same as the configuration.
func likeDockerfile(t *testing.T, image v1.Image) {
	t.Helper()
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, last, _ := strings.Cut(strings.ReplaceAll(string(data), " \\\n", ""), "FROM ${BASE_IMAGE}")
	last = strings.Join(strings.Fields(last), " ")
	c := file.Config
	wants := []string{
		"USER " + c.User, "ENV " + strings.Join(c.Env, " "), "VOLUME /data", "EXPOSE 8080", "STOPSIGNAL " + c.StopSignal,
		"HEALTHCHECK --interval=" + c.Healthcheck.Interval.String() + " --timeout=" + c.Healthcheck.Timeout.String() +
			" --start-period=" + c.Healthcheck.StartPeriod.String() + ` ` + c.Healthcheck.Test[0] + ` ["` + strings.Join(c.Healthcheck.Test[1:], `", "`) + `"]`,
		`ENTRYPOINT ["` + strings.Join(c.Entrypoint, `", "`) + `"]`, `CMD ["` + strings.Join(c.Cmd, `", "`) + `"]`,
	}
	for _, name := range []string{"title", "description", "source", "licenses"} {
		wants = append(wants, "org.opencontainers.image."+name+`="`+c.Labels["org.opencontainers.image."+name]+`"`)
	}
	for _, want := range wants {
		if !strings.Contains(last, want) {
			t.Errorf("the Dockerfile does not say %s: %s", want, last)
		}
	}
	if _, ok := c.Volumes["/data"]; !ok || len(c.ExposedPorts) != 1 {
		t.Errorf("%v %v", c.Volumes, c.ExposedPorts)
	}
}

// A component without a known licence, or with one that is not allowed, stops the release.
func TestIdentify(t *testing.T) {
	const bsd = "Redistribution and use in source and\n binary forms, with or without modification"
	for text, want := range map[string]string{
		"Apache License\n                           Version 2.0, January 2004":                 "Apache-2.0",
		"MIT\n\nPermission is hereby granted, free of charge, to any\nperson obtaining a copy": "MIT",
		bsd: "BSD-2-Clause",
		bsd + "\n * Neither the name of Google Inc. nor": "BSD-3-Clause",
		"GNU GENERAL PUBLIC LICENSE\nVersion 3":          "is not allowed",
		"All rights reserved.":                           "no licence was found",
	} {
		file := filepath.Join(t.TempDir(), "LICENSE")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		ids, err := identify("a", []string{file})
		got := strings.Join(ids, " ")
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestPackageVersion(t *testing.T) {
	for version, want := range map[string]string{
		"0.1.0": "0.1.0", "0.1.0-rc.1": "0.1.0-rc.1", "03ca70da-dirty": "0.0.0~03ca70da.dirty", "1234567": "0.0.0~1234567",
	} {
		if got := (release{version: version}).packageVersion(); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}
