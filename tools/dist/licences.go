package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licenceFile matches the names of files with a licence, or with notices that a licence demands to keep.
var licenceFile = regexp.MustCompile(`(?i)^(licen[sc]e|copying|notice|patents)([.-].*)?$`)

// licences returns the texts in the files with licences. Equal texts are written once.
func licences(files map[string][]string) ([]byte, error) {
	owners := map[string][]string{} // by text
	for _, owner := range slices.Sorted(maps.Keys(files)) {
		for _, file := range files[owner] {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			key := strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n"))
			if !slices.Contains(owners[key], owner) {
				owners[key] = append(owners[key], owner)
			}
		}
	}
	texts := slices.SortedFunc(maps.Keys(owners), func(a, b string) int {
		return strings.Compare(strings.Join(owners[a], "\n")+a, strings.Join(owners[b], "\n")+b)
	})
	var b strings.Builder
	b.WriteString("councild contains these components. The licence of councild itself is in LICENSE.\n")
	for _, text := range texts {
		fmt.Fprintf(&b, "\n%s\n%s\n%[1]s\n\n%s\n", strings.Repeat("=", 80), strings.Join(owners[text], "\n"), text)
	}
	return []byte(b.String()), nil
}

// licenceFiles returns the files with the licences of each component, by its name and version. The components are all
// that a binary or the image holds: the modules for all targets, Go's standard library, the libraries of the page, and
// the root certificates.
func (r release) licenceFiles() (map[string][]string, error) {
	files := map[string][]string{}
	for _, t := range targets() {
		packages, err := r.golang(t, "list", "-deps", "-f",
			"{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}", "./cmd/councild")
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(packages) {
			fields := strings.Split(strings.TrimSpace(line), "\t")
			if len(fields) != 3 {
				continue // The package is Go's or councild's own.
			}
			for dir := fields[2]; strings.HasPrefix(dir, fields[1]); dir = filepath.Dir(dir) {
				if err := addLicences(files, fields[0], dir); err != nil {
					return nil, err
				}
			}
		}
	}
	golang, err := output(nil, "go", "env", "GOVERSION", "GOROOT")
	if err != nil {
		return nil, err
	}
	version, goroot, _ := strings.Cut(golang, "\n")
	if err := addLicences(files, "std "+version, goroot); err != nil {
		return nil, err
	}
	roots, err := output(nil, "go", "list", "-m", "-f", "{{.Path}} {{.Version}}\t{{.Dir}}", rootsModule)
	if err != nil {
		return nil, err
	}
	owner, dir, _ := strings.Cut(roots, "\t")
	if err := addLicences(files, owner, dir); err != nil {
		return nil, err
	}
	libraries, err := r.libraries()
	if err != nil {
		return nil, err
	}
	for _, l := range libraries {
		files[l.name+" "+l.version] = []string{l.licence}
	}
	return files, nil
}

// addLicences adds the licences in a directory to those of their owner.
func addLicences(files map[string][]string, owner, dir string) error {
	found, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	files[owner] = append(files[owner], []string{}...) // Without a licence, the owner is known too.
	for _, file := range found {
		path := filepath.Join(dir, file.Name())
		if !file.IsDir() && licenceFile.MatchString(file.Name()) && !slices.Contains(files[owner], path) {
			files[owner] = append(files[owner], path)
		}
	}
	return nil
}

// allowed has the licences that a component may have. They allow to distribute the component with councild, together
// with its licence.
func allowed() []string {
	return []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0"}
}

// identify returns the SPDX identifiers of the licences in the files of a component. It is an error if there are none, or
// if one is not allowed. The phrases decide, because detectors by likeness took licences with a preamble for others.
func identify(owner string, files []string) ([]string, error) {
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		all.WriteString(strings.Join(strings.Fields(string(text)), " ") + " ")
	}
	var found []string
	for phrase, id := range map[string]string{
		"Apache License Version 2.0, January 2004":                                      "Apache-2.0",
		"Permission is hereby granted, free of charge, to any person obtaining a copy":  "MIT",
		"Permission to use, copy, modify, and distribute this software for any purpose": "ISC",
		"Permission to use, copy, modify, and/or distribute this software for any":      "ISC",
		"Mozilla Public License Version 2.0":                                            "MPL-2.0",
		"GNU GENERAL PUBLIC LICENSE":                                                    "GPL",
		"GNU LESSER GENERAL PUBLIC LICENSE":                                             "LGPL",
		"GNU AFFERO GENERAL PUBLIC LICENSE":                                             "AGPL",
		"Redistribution and use in source and binary forms":                             "BSD-2-Clause",
	} {
		if !strings.Contains(all.String(), phrase) {
			continue
		}
		if id == "BSD-2-Clause" && regexp.MustCompile(`(?i)neither the names? `).MatchString(all.String()) {
			id = "BSD-3-Clause"
		}
		found = append(found, id)
	}
	slices.Sort(found)
	found = slices.Compact(found)
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: no licence was found", owner)
	}
	for _, id := range found {
		if !slices.Contains(allowed(), id) {
			return nil, fmt.Errorf("%s: the licence %s is not allowed", owner, id)
		}
	}
	return found, nil
}

// library is a library of the page, from npm.
type library struct{ name, version, licence string }

// libraries returns the libraries that tools/vendor.sh fetches.
func (r release) libraries() ([]library, error) {
	script, err := os.ReadFile(filepath.Join(r.root, "tools/vendor.sh"))
	if err != nil {
		return nil, err
	}
	var libraries []library
	for _, found := range regexp.MustCompile(`(?m)^take (\S+)@(\S+) (\S+) `).FindAllStringSubmatch(string(script), -1) {
		libraries = append(libraries, library{found[1], found[2], filepath.Join(r.root, "web/vendor", found[3]+".LICENSE")})
	}
	shipped, err := filepath.Glob(filepath.Join(r.root, "web/vendor/*.js"))
	if err != nil || len(shipped) != len(libraries) {
		return nil, fmt.Errorf("web/vendor has %d libraries, but tools/vendor.sh fetches %d: %w", len(shipped), len(libraries), err)
	}
	return libraries, nil
}
