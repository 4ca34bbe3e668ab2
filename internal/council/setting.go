package council

import "cmp"

// Setting is a setting that a message tells the user to check or to change. Its value is the name of its field in
// package config. Only package config knows the name by which users set it.
type Setting string

// The settings that messages name.
const (
	SettingAllowedModels         Setting = "AllowedModels"
	SettingAPITokens             Setting = "APITokens"
	SettingAttemptTimeout        Setting = "AttemptTimeout"
	SettingBiasConsent           Setting = "BiasConsent"
	SettingBiasPersistence       Setting = "BiasPersistence"
	SettingBiasWindowDays        Setting = "BiasWindowDays"
	SettingCORSOrigins           Setting = "CORSOrigins"
	SettingDataDir               Setting = "DataDir"
	SettingEmbeddingModel        Setting = "EmbeddingModel"
	SettingEventsIntake          Setting = "EventsIntake"
	SettingHashSecret            Setting = "HashSecret"
	SettingJudgeModel            Setting = "JudgeModel"
	SettingMaxCostUSD            Setting = "MaxCostUSD"
	SettingMaxCostUSDPerDay      Setting = "MaxCostUSDPerDay"
	SettingMaxCostUSDPerTokenDay Setting = "MaxCostUSDPerTokenDay" //nolint:gosec // no credentials
	SettingMaxModels             Setting = "MaxModels"
	SettingMaxOutputTokens       Setting = "MaxOutputTokens"
	SettingMaxQueryBytes         Setting = "MaxQueryBytes"
	SettingMaxSessions           Setting = "MaxSessions"
	SettingPartialBallots        Setting = "PartialBallots"
	SettingPrices                Setting = "Prices"
	SettingProviders             Setting = "Providers"
	SettingRoster                Setting = "Roster"
	SettingSelfReviewRate        Setting = "SelfReviewRate"
	SettingStragglerGrace        Setting = "StragglerGrace"
)

// SettingNames are the names by which users set the settings. Every package that writes messages about settings is
// given them.
type SettingNames map[Setting]string

// Of returns the name that users know for a setting, or the setting itself if it has no such name.
func (n SettingNames) Of(s Setting) string { return cmp.Or(n[s], string(s)) }
