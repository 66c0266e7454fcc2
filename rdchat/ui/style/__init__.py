"""The look of the interface: colours and fonts, icons, labels, small buttons, and figures as text."""
