"""The reviewers' inbox: policy, decisions and pages. It imports Helix; Helix never imports it."""
