package council

import "cmp"

// Setting is a setting that messages tell a user to look at or to change. Its value is
// the name of the field that holds it, in the package that owns the settings: that
// package alone knows by what name users set it.
type Setting string

// The settings that messages name.
const (
	SettingAllowedModels         Setting = "AllowedModels"
	SettingAPITokens             Setting = "APITokens"
	SettingAttemptTimeout        Setting = "AttemptTimeout"
	SettingBiasConsent           Setting = "BiasConsent"
	SettingBiasPersistence       Setting = "BiasPersistence"
	SettingBiasWindowDays        Setting = "BiasWindowDays"
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

// SettingNames are the names by which users set the settings. They are handed to every
// package that writes messages.
type SettingNames map[Setting]string

// Of returns the name of a setting, and where none is known the setting itself.
func (n SettingNames) Of(s Setting) string { return cmp.Or(n[s], string(s)) }
