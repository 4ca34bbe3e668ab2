package council_test

import (
	"testing"

	"github.com/councild/councild/internal/council"
)

func TestModelNames(t *testing.T) {
	providers := []string{"", "openai"}
	for _, tt := range []struct{ member, provider, model, maker string }{
		{"openai:gpt-5", "openai", "gpt-5", "gpt-5"},
		{"openai:x/y:free", "openai", "x/y:free", "x"},
		{"openai/gpt-5", "", "openai/gpt-5", "openai"},
		{"openai", "", "openai", "openai"},
		{"~openai/gpt-latest", "", "~openai/gpt-latest", "openai"},
		{"~openai/gpt-latest:nitro#2", "", "~openai/gpt-latest:nitro", "openai"},
		{"openai:~anthropic/claude-opus-latest", "openai", "~anthropic/claude-opus-latest", "anthropic"},
		{"llama3:8b", "", "llama3:8b", "llama3:8b"},
		{":odd", "", ":odd", ":odd"},
		{"openai:llama3:8b#2", "openai", "llama3:8b", "llama3:8b"},
	} {
		provider, model := council.SplitModel(council.ModelOf(tt.member), providers)
		if provider != tt.provider {
			t.Errorf("%s goes to provider %q, want %q", tt.member, provider, tt.provider)
		}
		if model != tt.model {
			t.Errorf("%s is model %q of its provider, want %q", tt.member, model, tt.model)
		}
		if maker := council.Maker(tt.member, providers); maker != tt.maker {
			t.Errorf("%s is made by %q, want %q", tt.member, maker, tt.maker)
		}
	}
}

func TestBreakerName(t *testing.T) {
	for want, b := range map[string]council.Breaker{"m": {Model: "m"}, "p:m": {Provider: "p", Model: "m"}} {
		if got := b.Name(); got != want {
			t.Errorf("%+v has the name %q, want %q", b, got, want)
		}
	}
}

func TestSettingNames(t *testing.T) {
	names := council.SettingNames{council.SettingMaxModels: "QUORUM"}
	if got := names.Of(council.SettingMaxModels); got != "QUORUM" {
		t.Errorf("a setting with a name is called %q", got)
	}
	if got := names.Of(council.SettingProviders); got != string(council.SettingProviders) {
		t.Errorf("a setting without a name is called %q", got)
	}
}
