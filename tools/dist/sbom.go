package main

import (
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// sbom writes the SBOM of a binary in CycloneDX format. It is an error if a component has no licence, or one that is not
// allowed.
func (r release) sbom(name, binary string, licences map[string][]string) error {
	made, err := output(nil, "go", "tool", "cyclonedx-gomod", "bin", "-json", "-std", "-noserial", "-notimestamp",
		"-version", r.tag, binary)
	if err != nil {
		return err
	}
	bom := new(cdx.BOM)
	if err := cdx.NewBOMDecoder(strings.NewReader(made), cdx.BOMFileFormatJSON).Decode(bom); err != nil {
		return err
	}
	bom.Metadata.Timestamp = r.time.Format(time.RFC3339)
	bom.Metadata.Tools = nil // It has hashes of the tool, which differ between machines.
	libraries, err := r.libraries()
	if err != nil {
		return err
	}
	for _, l := range libraries {
		purl := "pkg:npm/" + strings.ReplaceAll(l.name, "@", "%40") + "@" + l.version
		*bom.Components = append(*bom.Components, cdx.Component{
			BOMRef: purl, PackageURL: purl, Type: cdx.ComponentTypeLibrary, Name: l.name, Version: l.version,
		})
	}
	for i, c := range *bom.Components {
		owner := c.Name + " " + c.Version
		ids, err := identify(owner, licences[owner])
		if err != nil {
			return err
		}
		found := cdx.Licenses{}
		for _, id := range ids {
			found = append(found, cdx.LicenseChoice{License: &cdx.License{ID: id}})
		}
		(*bom.Components)[i].Licenses = &found
	}
	var b strings.Builder
	if err := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return write(name, []byte(b.String()), 0o644)
}
