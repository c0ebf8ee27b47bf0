"""The reviewers' inbox: policy, decisions and notices. It imports Helix; Helix never imports it."""
