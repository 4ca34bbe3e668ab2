package llm

import (
	"net/http"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		header, value string
		want          float64 // negative: none
	}{
		{"Retry-After", "2", 2},
		{"Retry-After", "0.5", 0.5},
		{"Retry-After", now.Add(90 * time.Second).Format(http.TimeFormat), 90},
		{"Retry-After", now.Add(-time.Hour).Format(http.TimeFormat), 0},
		{"Retry-After-Ms", "250", 0.25},
		{"Retry-After", "-1", -1},
		{"Retry-After", "soon", -1},
		{"Retry-After", "NaN", -1},
		{"Retry-After", "Inf", -1},
		{"Retry-After-Ms", "x", -1},
		{"Date", "2", -1},
	}
	for _, tt := range tests {
		got := retryAfter(http.Header{tt.header: {tt.value}}, now)
		if (got == nil) != (tt.want < 0) || got != nil && *got != tt.want {
			t.Errorf("%s: %s: got %v, want %v", tt.header, tt.value, got, tt.want)
		}
	}
}
