"""Speed and growth as ratios, measured side by side in one run. Nothing here is a test, and no test has a clock."""
