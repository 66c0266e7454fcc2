"""The About box: versions and licences."""

import platform
from html import escape
from importlib import metadata

from PySide6.QtCore import Qt, qVersion
from PySide6.QtWidgets import QMessageBox, QWidget

import rdchat
from rdchat.ui.look.icons import app_pixmap
from rdchat.ui.look.plain_text import message_box

_WORDS = (
    "<p>Chat with language models that run on your own machine.</p>"
    "<p><small>Python {python}, Qt {qt}, MLX {mlx}, mlx-lm {mlx_lm}</small></p>"
    "<p><small>Licensed under the Apache License 2.0. The default model is SmolLM2 135M Instruct by Hugging Face, "
    "Apache License 2.0. Qt is used under the LGPL 3.</small></p>"
)


def about_box(parent: QWidget) -> QMessageBox:
    """Return the box, which deletes itself when closed. Versions come from metadata: MLX is not imported."""
    box = message_box(QMessageBox.Icon.NoIcon, "", title="About rdchat", parent=parent)
    box.setTextFormat(Qt.TextFormat.RichText)  # our own markup
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    box.setIconPixmap(app_pixmap(72, 2))
    box.setText(f"<b>rdchat {rdchat.__version__}</b>")
    box.setInformativeText(
        _WORDS.format(
            python=escape(platform.python_version()),
            qt=qVersion(),
            mlx=escape(metadata.version("mlx")),
            mlx_lm=escape(metadata.version("mlx-lm")),
        )
    )
    return box
