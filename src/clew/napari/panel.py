"""The widgets of the annotation dock; Qt is imported when they are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clew.annotation.files import ExportKind

NO_IMAGE = "none"
EXPORTS = {
    ExportKind.WEIGHTS: "Weights (.clew)",
    ExportKind.ANNOTATIONS_CSV: "Answers (.csv)",
    ExportKind.CTC: "Tracks, Cell Tracking Challenge (.zip)",
    ExportKind.GEFF: "Tracks, GEFF (.zip)",
    ExportKind.CSV: "Tracks, CSV (.zip)",
    ExportKind.MASKS: "Masks (.zip)",
}
ANSWERS = {
    "yes": ("Yes (Y)", "The event happened as drawn"),
    "no": ("No (N)", "It did not happen"),
    "say": ("As clicked (J)", "What happened instead: click the cells in both frames"),
    "false": (
        "Not a cell (C)",
        "The outline in question, or the one clicked, is no cell",
    ),
    "skip": ("Skip (K)", "Ask something else"),
    "blink": ("Other frame (H)", "Go to the other frame of the question"),
    "undo": ("Undo (U)", "Undo the last answer or mask edit"),
}


class Panel:
    """Layers to choose, the question, buttons for answers, and the results.

    Parameters
    ----------
    act : callable
        Called with the name of a button: "start", "tracks", those of `ANSWERS`.
    export : callable
        Called with an `ExportKind`.
    """

    def __init__(
        self, act: Callable[[str], None], export: Callable[[ExportKind], None]
    ) -> None:
        from qtpy.QtCore import Qt
        from qtpy.QtWidgets import (
            QComboBox,
            QFormLayout,
            QGridLayout,
            QLabel,
            QMenu,
            QPushButton,
            QVBoxLayout,
            QWidget,
        )

        self.widget = QWidget()
        self.labels = QComboBox()
        self.image = QComboBox()
        self.question = QLabel("Choose the masks, then track.")
        self.status = QLabel()
        self.errors = QLabel()
        for text in (self.question, self.status, self.errors):
            text.setWordWrap(True)
            text.setTextFormat(Qt.TextFormat.PlainText)  # names may look like HTML
        self.buttons: dict[str, Any] = {}

        def add_button(name: str, text: str, tip: str) -> Any:
            button = QPushButton(text)
            button.setToolTip(tip)
            button.clicked.connect(lambda: act(name))
            self.buttons[name] = button
            return button

        layers = QFormLayout()
        layers.addRow("Masks", self.labels)
        layers.addRow("Image", self.image)
        grid = QGridLayout()
        for place, (name, (text, tip)) in enumerate(ANSWERS.items()):
            grid.addWidget(add_button(name, text, tip), place // 2, place % 2)
        layout = QVBoxLayout(self.widget)
        layout.addLayout(layers)
        layout.addWidget(
            add_button("start", "Track and ask", "Track the cells of the masks")
        )
        layout.addWidget(self.question)
        layout.addLayout(grid)
        layout.addWidget(self.errors)
        layout.addWidget(
            add_button("tracks", "Show tracks", "Add or renew the Tracks layer")
        )
        self.export = QPushButton("Export")
        menu = QMenu(self.export)
        for kind, text in EXPORTS.items():
            action = menu.addAction(text)
            action.triggered.connect(lambda _=False, kind=kind: export(kind))
        self.export.setMenu(menu)
        layout.addWidget(self.export)
        layout.addWidget(self.status)
        layout.addStretch()
        self.set_open(False)

    def set_open(self, is_open: bool) -> None:
        """Enable what needs a movie."""
        for name, button in self.buttons.items():
            button.setEnabled(is_open or name == "start")
        self.export.setEnabled(is_open)

    def set_asking(self, is_asking: bool) -> None:
        """Enable the answers while a question is shown."""
        for name in ("yes", "no", "say", "false", "skip", "blink"):
            self.buttons[name].setEnabled(is_asking)

    def list_layers(self, labels: list[str], images: list[str]) -> None:
        """Offer layers; the choice stays if it can."""
        for box, names in ((self.labels, labels), (self.image, [NO_IMAGE, *images])):
            chosen = box.currentText()
            box.clear()
            box.addItems(names)
            if chosen in names:
                box.setCurrentText(chosen)
        if self.image.currentText() == NO_IMAGE and images and not self._was_chosen():
            self.image.setCurrentText(images[0])

    def _was_chosen(self) -> bool:
        """Return whether the person can have chosen no image: a movie is open."""
        return bool(self.export.isEnabled())

    def ask_path(self, kind: ExportKind, name: str) -> str:
        """Ask where to save an export; empty if the person does not want to."""
        from qtpy.QtWidgets import QFileDialog

        path, _ = QFileDialog.getSaveFileName(self.widget, EXPORTS[kind], name)
        return str(path)
