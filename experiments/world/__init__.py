"""Small generative models whose diversity is known; README.md says what they are."""
