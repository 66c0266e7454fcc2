"""Short news-like texts in German, French, Spanish and Italian, put together from parts, to be translated.

A small target writes other languages badly, so what it is asked to translate cannot be its own. Every sentence is
"when has who done what", with a clause behind some of them: some ten thousand sentences a language.
"""

import random
from dataclasses import dataclass


def _parts(text: str) -> tuple[str, ...]:
    """Split a block of text at its bars."""
    return tuple(" ".join(part.split()) for part in text.split("|"))


@dataclass(frozen=True, slots=True)
class _Grammar:
    """The parts of a language's sentences.

    Attributes:
        pattern: How they are put together.
        times: When.
        subjects: Who, in the singular.
        deeds: What they have done: an object and a participle, in the language's order.
        clauses: What may follow.
    """

    pattern: str
    times: tuple[str, ...]
    subjects: tuple[str, ...]
    deeds: tuple[str, ...]
    clauses: tuple[str, ...]

    def sentence(self, draw: random.Random) -> str:
        """Return one sentence with its full stop."""
        clause = draw.choice(self.clauses) if draw.random() < 0.6 else ""
        parts = {"when": draw.choice(self.times), "who": draw.choice(self.subjects), "what": draw.choice(self.deeds)}
        return self.pattern.format(**parts) + clause + "."


_GRAMMARS = {
    "German": _Grammar(
        "{when} hat {who} {what}",
        _parts("""
            Am Montag|Gestern Abend|In der vergangenen Woche|Kurz vor Mitternacht|Nach langen Verhandlungen|Im Herbst|
            Seit Beginn des Jahres|Am frühen Morgen|Trotz des schlechten Wetters|Vor drei Jahren|Zum ersten Mal|Im Juli|
            Wie erwartet|Überraschend|Nur zwei Tage später|In diesem Sommer|Nach Angaben der Behörden|Bislang|
            Während der Ferien|Am Ende der Sitzung|Im zweiten Quartal|Auf dem Marktplatz|In der kleinen Stadt
        """),
        _parts("""
            die Polizei|der Bürgermeister|das Unternehmen|eine junge Lehrerin|der Trainer|die Regierung|ein Fischer|
            das Krankenhaus|die Gewerkschaft|der Zoo|eine Gruppe von Schülern|der Verkehrsminister|die Bank|
            mein Nachbar|das Gericht|die Universität|der Bauernverband|
            eine Forscherin aus Leipzig|der Bahnhofsvorsteher|das Museum|
            die Feuerwehr|ein bekannter Schriftsteller|die Fluggesellschaft|der Verein|das Parlament
        """),
        _parts("""
            neue Zahlen zur Arbeitslosigkeit vorgelegt|den Vertrag um zwei Jahre verlängert|einen alten Brief gefunden|
            die Preise deutlich erhöht|mehrere Straßen gesperrt|auf den Vorschlag nicht geantwortet|das Spiel verloren|
            eine Ausstellung über das Mittelalter eröffnet|die Ergebnisse der Studie bestätigt|den Antrag abgelehnt|
            rund hundert neue Stellen geschaffen|die Brücke über den Fluss repariert|einen Preis gewonnen|
            vor den Folgen des Klimawandels gewarnt|die Verantwortung für den Fehler übernommen|ein Fest veranstaltet|
            das Gebäude verkauft|die Bürger um Hilfe gebeten|zum ersten Mal Gewinn gemacht|den Flug abgesagt|
            einen Hund aus dem Wasser gerettet|die Wahl knapp gewonnen|den Plan für die neue Schule vorgestellt|
            drei Verdächtige festgenommen|über die hohen Mieten geklagt|die Zusammenarbeit beendet|viel Lob erhalten
        """),
        _parts("""
            , weil das Geld nicht reicht|, wie ein Sprecher mitteilte|, obwohl viele dagegen waren|
            , um Kosten zu sparen|, und niemand wurde verletzt|, berichtet eine Zeitung|
            , aber die Kritik wächst|, sagte der Direktor|
            , nachdem es tagelang geregnet hatte|, damit die Kinder sicher zur Schule kommen|, was viele überraschte|
            , doch eine Lösung ist nicht in Sicht|, und das soll auch so bleiben|, die seit Jahren geplant war
        """),
    ),
    "French": _Grammar(
        "{when}, {who} a {what}",
        _parts("""
            Lundi dernier|Hier soir|La semaine dernière|Peu avant minuit|Après de longues négociations|En automne|
            Depuis le début de l'année|Tôt ce matin|Malgré le mauvais temps|Il y a trois ans|Pour la première fois|
            Comme prévu|À la surprise générale|Deux jours plus tard|Cet été|Selon les autorités|Pendant les vacances
        """),
        _parts("""
            la police|le maire|l'entreprise|une jeune institutrice|l'entraîneur|le gouvernement|un pêcheur|l'hôpital|
            le syndicat|le zoo|un groupe d'élèves|le ministre des Transports|la banque|mon voisin|le tribunal|
            l'université|une chercheuse de Lyon|le musée|le chef de gare|un écrivain célèbre|la compagnie aérienne
        """),
        _parts("""
            présenté de nouveaux chiffres sur le chômage|prolongé le contrat de deux ans|trouvé une vieille lettre|
            augmenté ses prix|fermé plusieurs routes|refusé de répondre à la proposition|perdu le match|
            ouvert une exposition sur le Moyen Âge|confirmé les résultats de l'étude|rejeté la demande|
            créé une centaine d'emplois|réparé le pont|remporté un prix|mis en garde contre le changement climatique|
            reconnu son erreur|organisé une fête|vendu le bâtiment|demandé l'aide des habitants|annulé le vol|
            sauvé un chien de la noyade|gagné les élections de justesse|arrêté trois suspects|reçu beaucoup d'éloges
        """),
        _parts("""
            , faute d'argent|, a annoncé un porte-parole|, malgré de nombreuses critiques|, afin de réduire les coûts|
            , et personne n'a été blessé|, selon un journal local|, ce qui a surpris tout le monde|, a dit le directeur|
            , après plusieurs jours de pluie|, mais aucune solution n'est en vue|, pour le bien des enfants
        """),
    ),
    "Spanish": _Grammar(
        "{when}, {who} ha {what}",
        _parts("""
            El lunes|Anoche|La semana pasada|Poco antes de medianoche|Tras largas negociaciones|En otoño|Este verano|
            Desde principios de año|Esta mañana temprano|A pesar del mal tiempo|Hace tres años|Por primera vez|
            Como se esperaba|Para sorpresa de todos|Dos días después|Según las autoridades|Durante las vacaciones
        """),
        _parts("""
            la policía|el alcalde|la empresa|una joven maestra|el entrenador|el gobierno|un pescador|el hospital|
            el sindicato|el zoológico|un grupo de alumnos|el ministro de Transporte|el banco|mi vecino|el tribunal|
            la universidad|una investigadora de Sevilla|el museo|el jefe de estación|un escritor famoso|la aerolínea
        """),
        _parts("""
            presentado nuevas cifras de desempleo|prorrogado el contrato dos años|encontrado una carta antigua|
            subido los precios|cerrado varias carreteras|evitado responder a la propuesta|perdido el partido|
            inaugurado una exposición sobre la Edad Media|confirmado los resultados del estudio|rechazado la solicitud|
            creado un centenar de empleos|reparado el puente|ganado un premio|advertido sobre el cambio climático|
            reconocido su error|organizado una fiesta|vendido el edificio|pedido ayuda a los vecinos|cancelado el vuelo|
            salvado a un perro en el río|ganado las elecciones por poco|detenido a tres sospechosos
        """),
        _parts("""
            , por falta de dinero|, según informó un portavoz|, a pesar de las críticas|, para reducir costes|
            , y nadie resultó herido|, informa un periódico local|, lo que sorprendió a todos|, dijo el director|
            , después de varios días de lluvia|, pero no hay solución a la vista
        """),
    ),
    "Italian": _Grammar(
        "{when} {who} ha {what}",
        _parts("""
            Lunedì|Ieri sera|La settimana scorsa|Poco prima di mezzanotte|Dopo lunghe trattative|In autunno|Stamattina|
            Dall'inizio dell'anno|Nonostante il maltempo|Tre anni fa|Per la prima volta|Come previsto|Due giorni dopo
        """),
        _parts("""
            la polizia|il sindaco|l'azienda|una giovane maestra|l'allenatore|il governo|un pescatore|l'ospedale|
            il sindacato|lo zoo|un gruppo di studenti|il ministro dei Trasporti|la banca|il mio vicino|il tribunale
        """),
        _parts("""
            presentato nuovi dati sulla disoccupazione|prolungato il contratto di due anni|trovato una vecchia lettera|
            aumentato i prezzi|chiuso diverse strade|perso la partita|inaugurato una mostra sul Medioevo|
            confermato i risultati dello studio|respinto la richiesta|creato un centinaio di posti di lavoro|
            riparato il ponte|vinto un premio|ammesso l'errore|organizzato una festa|venduto l'edificio|
            chiesto aiuto ai cittadini|cancellato il volo|salvato un cane dal fiume|arrestato tre sospetti
        """),
        _parts("""
            , per mancanza di soldi|, ha detto un portavoce|, nonostante le critiche|, per ridurre i costi|
            , e nessuno è rimasto ferito|, secondo un giornale locale|, con grande sorpresa di tutti
        """),
    ),
}
LANGUAGES = tuple(_GRAMMARS)


def foreign_text(draw: random.Random, language: str, most_sentences: int = 2) -> str:
    """Return one or more sentences.

    Args:
        draw: Decides.
        language: One of `LANGUAGES`.
        most_sentences: At most so many.
    """
    grammar = _GRAMMARS[language]
    return " ".join(grammar.sentence(draw) for _ in range(draw.randint(1, most_sentences)))
