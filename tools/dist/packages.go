package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers the format
)

// packages writes the packages for Debian and Red Hat from the tree of an archive. The unit has a dynamic user, so that
// the packages neither make nor remove one.
func (r release) packages(tree, arch string) error {
	extra := filepath.Join(r.work, "packages-"+arch)
	pages, err := filepath.Glob(filepath.Join(tree, "man", "*.1"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		packed, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			return err
		}
		_, _ = packed.Write(data) // A buffer takes everything.
		_ = packed.Close()
		if err := write(filepath.Join(extra, "man", filepath.Base(page)+".gz"), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	unit, err := os.ReadFile(filepath.Join(tree, "deploy/councild.service"))
	if err != nil {
		return err
	}
	unit = bytes.ReplaceAll(unit, []byte("=/usr/local/bin/"), []byte("=/usr/bin/"))
	if err := write(filepath.Join(extra, "councild.service"), unit, 0o644); err != nil {
		return err
	}
	if err := stamp(extra, r.time); err != nil {
		return err
	}
	for format, zsh := range map[string]string{"deb": "vendor-completions", "rpm": "site-functions"} {
		contents := files.Contents{
			{Destination: "/etc/councild", Type: files.TypeDir},
			{Destination: "/usr/share/doc/councild", Type: files.TypeDir},
			{
				Source: filepath.Join(tree, ".env.example"), Destination: "/etc/councild/env", Type: files.TypeConfigNoReplace,
				FileInfo: &files.ContentFileInfo{Mode: 0o600},
			},
			{Source: filepath.Join(extra, "councild.service"), Destination: "/usr/lib/systemd/system/councild.service"},
			{Source: filepath.Join(extra, "man"), Destination: "/usr/share/man/man1", Type: files.TypeTree},
			{Source: filepath.Join(tree, "LICENSE"), Destination: "/usr/share/doc/councild/copyright"},
		}
		for from, to := range map[string]string{
			"councild":                  "/usr/bin/councild",
			"completions/councild.bash": "/usr/share/bash-completion/completions/councild",
			"completions/councild.fish": "/usr/share/fish/vendor_completions.d/councild.fish",
			"completions/_councild":     "/usr/share/zsh/" + zsh + "/_councild",
			"README.md":                 "/usr/share/doc/councild/README.md",
			"CHANGELOG.md":              "/usr/share/doc/councild/CHANGELOG.md",
			"THIRD_PARTY_LICENSES.txt":  "/usr/share/doc/councild/THIRD_PARTY_LICENSES.txt",
		} {
			contents = append(contents, &files.Content{Source: filepath.Join(tree, from), Destination: to})
		}
		for _, dir := range []string{"docs", "examples"} {
			contents = append(contents, &files.Content{
				Source: filepath.Join(tree, dir), Destination: "/usr/share/doc/councild/" + dir, Type: files.TypeTree,
			})
		}
		if err := r.pkg(format, arch, contents); err != nil {
			return err
		}
	}
	return nil
}

// pkg writes one package.
func (r release) pkg(format, arch string, contents files.Contents) error {
	scripts := filepath.Join(r.root, "tools/dist/scripts")
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "councild", Arch: arch, Platform: "linux", Version: r.packageVersion(), Release: "1", MTime: r.time,
		Section: "net", Priority: "optional", License: "MIT", Homepage: "https://github.com/councild/councild",
		Maintainer: "the councild authors <councild@users.noreply.github.com>", Vendor: "councild",
		Description: "LLM council behind one HTTP call\n" +
			"Several language models answer a question and review each other's answers,\nand a chairman writes the final one.",
		DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			Contents: contents,
			Scripts: nfpm.Scripts{
				PostInstall: filepath.Join(scripts, "postinstall.sh"),
				PreRemove:   filepath.Join(scripts, "preremove.sh"),
				PostRemove:  filepath.Join(scripts, "postremove.sh"),
			},
			Depends:    []string{map[string]string{"deb": "procps", "rpm": "util-linux"}[format]}, // The unit needs /bin/kill.
			Recommends: []string{"ca-certificates"},
			RPM:        nfpm.RPM{BuildHost: "councild", Summary: "LLM council behind one HTTP call"},
		},
	})
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := packager.Package(info, &b); err != nil {
		return err
	}
	return write(filepath.Join(r.out, "councild_"+r.version+"_linux_"+arch+"."+format), b.Bytes(), 0o644)
}
