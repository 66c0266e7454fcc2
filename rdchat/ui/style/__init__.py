"""How everything looks that is shown: colours and fonts, icons, labels, small buttons, and figures in words."""
