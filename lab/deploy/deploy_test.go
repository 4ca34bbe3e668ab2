// Package deploy tests that other programs read the files of deploy/ as they are meant. It is in this module because the
// types of Kubernetes and the loader of Compose are no dependencies of councild.
package deploy

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// image is the image of a release, which compose.yaml and kubernetes.yaml name.
const image = "ghcr.io/councild/councild:"

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestKubernetes decodes the manifests strictly: an unknown key or a value of a wrong type is an error.
func TestKubernetes(t *testing.T) {
	first, second, ok := strings.Cut(read(t, "deploy/kubernetes.yaml"), "\n---\n")
	if !ok || strings.Contains(second, "\n---\n") {
		t.Fatal("the manifests are not two")
	}
	var set apps.StatefulSet
	var service core.Service
	if err := yaml.UnmarshalStrict([]byte(first), &set); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(second), &service); err != nil {
		t.Fatal(err)
	}
	pod := set.Spec.Template.Spec
	c := pod.Containers[0]
	labels := set.Spec.Template.Labels
	for what, ok := range map[string]bool{
		"kinds":        set.Kind == "StatefulSet" && set.APIVersion == "apps/v1" && service.Kind == "Service" && service.APIVersion == "v1",
		"one replica":  *set.Spec.Replicas == 1,
		"one service":  set.Spec.ServiceName == service.Name,
		"selectors":    maps.Equal(labels, set.Spec.Selector.MatchLabels) && maps.Equal(labels, service.Spec.Selector),
		"ports":        service.Spec.Ports[0].TargetPort.StrVal == c.Ports[0].Name && c.Ports[0].ContainerPort == 8080,
		"volume":       c.VolumeMounts[0].Name == set.Spec.VolumeClaimTemplates[0].Name && c.VolumeMounts[0].MountPath == "/data",
		"user":         *pod.SecurityContext.RunAsNonRoot && *pod.SecurityContext.RunAsUser == 65532,
		"seccomp":      pod.SecurityContext.SeccompProfile.Type == core.SeccompProfileTypeRuntimeDefault,
		"no token":     !*pod.AutomountServiceAccountToken,
		"root":         *c.SecurityContext.ReadOnlyRootFilesystem && !*c.SecurityContext.AllowPrivilegeEscalation,
		"capabilities": slices.Equal(c.SecurityContext.Capabilities.Drop, []core.Capability{"ALL"}),
		"probes":       c.LivenessProbe.HTTPGet.Path == "/healthz" && c.ReadinessProbe.HTTPGet.Path == "/readyz",
		"time to stop": *pod.TerminationGracePeriodSeconds > 30,
		"image":        strings.HasPrefix(c.Image, image),
	} {
		if !ok {
			t.Errorf("%s: not as it should be", what)
		}
	}
	if err := yaml.UnmarshalStrict([]byte(strings.Replace(first, "replicas:", "replica:", 1)), &set); err == nil {
		t.Error("a misspelt key is no error")
	}
}

// TestCompose loads compose.yaml as Docker Compose does, and compares it with the manifests.
func TestCompose(t *testing.T) {
	text := read(t, "deploy/compose.yaml")
	load := func(text string) (*types.Project, error) {
		return loader.LoadWithContext(t.Context(), types.ConfigDetails{
			WorkingDir:  t.TempDir(),
			ConfigFiles: []types.ConfigFile{{Filename: "compose.yaml", Content: []byte(text)}},
			Environment: types.Mapping{"LLM_COUNCIL_MODELS": "a,b,c", "LLM_COUNCIL_API_TOKENS": "token"},
		}, func(o *loader.Options) { o.SetProjectName("councild", true) })
	}
	project, err := load(text)
	if err != nil {
		t.Fatal(err)
	}
	s := project.Services["councild"]
	for what, ok := range map[string]bool{
		"root":         s.ReadOnly,
		"capabilities": slices.Equal(s.CapDrop, []string{"ALL"}),
		"privileges":   slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}),
		"loopback":     s.Ports[0].HostIP == "127.0.0.1" && s.Ports[0].Target == 8080,
		"volume":       s.Volumes[0].Source == "councild-data" && s.Volumes[0].Target == "/data",
		"secrets":      len(s.Secrets) == 2 && len(project.Secrets) == 2,
		"image":        strings.HasPrefix(s.Image, image) && strings.Contains(read(t, "deploy/kubernetes.yaml"), "image: "+s.Image+"\n"),
	} {
		if !ok {
			t.Errorf("%s: not as it should be", what)
		}
	}
	if _, err := load(strings.Replace(text, "read_only", "readonly", 1)); err == nil {
		t.Error("a misspelt key is no error")
	}
	if _, err := load(read(t, "docs/cluster/compose.yaml")); err != nil {
		t.Errorf("docs/cluster/compose.yaml: %v", err)
	}
}
